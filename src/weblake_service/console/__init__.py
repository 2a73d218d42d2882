"""The console: pages for people to watch the service with, at `/`. They only read.

sign_in       who looks: a key is asked for once, and a cookie stands for it
queries       what each page shows, from the database
browsers      the same of browser sessions, which live in the process
charts        numbers as pictures (SVG)
pages         the pages themselves, and their addresses
templates/, static/   their HTML, style and script

Whatever a scraped page says is shown as text. The pages load nothing from elsewhere.
"""
