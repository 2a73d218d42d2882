"""The tables of the service's database."""

from __future__ import annotations

#: Increased when a table changes; a database of another version is refused.
VERSION = 7

#: Tables that a reset empties; keys and the clock are kept.
DATA_TABLES = (
    "jobs", "pages", "documents", "page_errors", "robots_blocked", "usage", "activity", "replays", "deliveries",
    "past_deliveries", "page_cache", "profiles", "page_history", "tracked_crawls", "counters", "model_work",
    "browser_sessions", "search_pages",
)  # fmt: skip

SCHEMA = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,                  -- batch_scrape, crawl, scrape, …
    team TEXT NOT NULL,
    key_name TEXT NOT NULL,
    url TEXT NOT NULL,                   -- of a batch: its first
    status TEXT NOT NULL,                -- scraping, completed, failed, cancelled
    error TEXT,
    created REAL NOT NULL,
    ended REAL,
    expected INTEGER NOT NULL DEFAULT 0, -- pages that may still be attempted or were
    documents INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    known INTEGER NOT NULL DEFAULT 0,    -- pages waiting or in flight
    placed INTEGER NOT NULL DEFAULT 0,   -- pages that were ever queued
    warning TEXT,
    credits INTEGER NOT NULL DEFAULT 0,
    options BLOB NOT NULL DEFAULT '{}',  -- scrape options, snake_case
    plan BLOB NOT NULL DEFAULT '{}',     -- the job's own options, snake_case
    shown BLOB NOT NULL DEFAULT '{}',    -- scrape options as they came, for the list of active crawls
    webhook BLOB,
    page_price INTEGER NOT NULL DEFAULT 1 -- credits that are reserved for each expected page
);
CREATE INDEX jobs_running ON jobs (status) WHERE status = 'scraping';
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE pages (                     -- what a running job has yet to do; a crawl keeps what is done, to resume
    job TEXT NOT NULL,
    place INTEGER NOT NULL,              -- in this job, from 1
    url TEXT NOT NULL,
    depth INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,     -- 1 where the page counts, 2 where it does not (blocked)
    final TEXT,                          -- where its redirects led
    mark INTEGER NOT NULL DEFAULT 0,     -- the last place that was known then
    queued REAL NOT NULL,
    ahead INTEGER NOT NULL,              -- pages of this job that were to be scraped before it then
    options BLOB,                        -- its own scrape options, where they are not the job's
    PRIMARY KEY (job, place)
) WITHOUT ROWID;

CREATE TABLE documents (                 -- in order of completion; encoded JSON that is spliced into replies
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    position INTEGER NOT NULL,
    scrape_id TEXT NOT NULL,
    url TEXT NOT NULL,                   -- where the page really was, after redirects
    bytes INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_of_job ON documents (job, position);
CREATE INDEX documents_by_scrape ON documents (scrape_id);

CREATE TABLE page_errors (
    id TEXT NOT NULL, job TEXT NOT NULL, at REAL NOT NULL, url TEXT NOT NULL, code TEXT NOT NULL, error TEXT NOT NULL
);
CREATE INDEX page_errors_of_job ON page_errors (job);
CREATE TABLE robots_blocked (job TEXT NOT NULL, url TEXT NOT NULL);
CREATE INDEX robots_blocked_of_job ON robots_blocked (job);

CREATE TABLE usage (
    team TEXT NOT NULL, key_name TEXT NOT NULL, month TEXT NOT NULL, credits INTEGER NOT NULL,
    PRIMARY KEY (team, key_name, month)
);
CREATE TABLE activity (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, team TEXT NOT NULL, endpoint TEXT NOT NULL, target TEXT, created REAL NOT NULL
);
CREATE INDEX activity_of_team ON activity (team, created, seq);

CREATE TABLE replays (                   -- what was answered under an idempotency key
    team TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL,
    forget REAL NOT NULL,
    PRIMARY KEY (team, key)
);
CREATE TABLE deliveries (                -- webhooks that are not acknowledged yet
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, job TEXT NOT NULL, team TEXT NOT NULL, type TEXT NOT NULL, url TEXT NOT NULL,
    headers BLOB NOT NULL, body BLOB NOT NULL, created REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, answer TEXT
);
CREATE INDEX deliveries_due ON deliveries (due);
CREATE INDEX deliveries_by_receiver ON deliveries (url, due);
CREATE TABLE past_deliveries (           -- the last of those that were acknowledged or given up; no bodies
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL, job TEXT NOT NULL, team TEXT NOT NULL, type TEXT NOT NULL, url TEXT NOT NULL,
    created REAL NOT NULL, tries INTEGER NOT NULL, state TEXT NOT NULL, ended REAL NOT NULL, answer TEXT NOT NULL
);
CREATE TABLE page_cache (                -- what targets answered, before anything was made of it
    key BLOB NOT NULL,
    verified INTEGER NOT NULL,           -- whether certificates were checked
    stored REAL NOT NULL,
    head BLOB NOT NULL,
    body BLOB NOT NULL,                  -- compressed
    PRIMARY KEY (key, verified)
);
CREATE INDEX page_cache_age ON page_cache (stored);
CREATE TABLE page_history (              -- the last version of each page whose changes are tracked
    key BLOB PRIMARY KEY,
    scraped REAL NOT NULL,
    body BLOB NOT NULL,                  -- compressed markdown
    crawl BLOB,                          -- the tracked crawl that last came upon the page, and when that began
    met REAL
);
CREATE TABLE tracked_crawls (key BLOB PRIMARY KEY, began REAL NOT NULL); -- the last one that saw its whole site

CREATE TABLE search_pages (              -- what each team can search; see search_index.py
    id INTEGER PRIMARY KEY,              -- the rowid in search_words
    team TEXT NOT NULL,
    key TEXT NOT NULL,                   -- the URL without what makes no other page of it
    host TEXT NOT NULL,                  -- without "www."
    port INTEGER,
    kind TEXT NOT NULL,                  -- content type
    stored REAL NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    url TEXT NOT NULL,
    text BLOB NOT NULL,                  -- compressed
    UNIQUE (team, key)
);
CREATE INDEX search_pages_age ON search_pages (stored);
CREATE VIRTUAL TABLE search_words USING fts5(
    title, description, text, url, content='',
    tokenize="porter unicode61 remove_diacritics 2 categories 'L* N* Co M*'"
);

CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE api_keys (digest TEXT PRIMARY KEY, name TEXT NOT NULL, team TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE model_work (                -- steps of running jobs of a language model, and at place 0 their results
    job TEXT NOT NULL, place INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (job, place)
) WITHOUT ROWID;
CREATE TABLE profiles (                  -- what browsers keep between scrapes: cookies and storage as JSON
    team TEXT NOT NULL, name TEXT NOT NULL, saved REAL NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (team, name)
) WITHOUT ROWID;
CREATE TABLE browser_sessions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE, team TEXT NOT NULL, key_name TEXT NOT NULL,
    scrape TEXT,                         -- the scrape whose page it goes on with; NULL for a session of its own
    streamed INTEGER NOT NULL,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    used REAL NOT NULL,                  -- when it was last used, and when it was last known to live
    seen REAL NOT NULL,
    ended REAL,
    credits INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX browser_sessions_of_team ON browser_sessions (team, seq);
CREATE INDEX browser_sessions_of_scrape ON browser_sessions (scrape) WHERE scrape IS NOT NULL;
"""
