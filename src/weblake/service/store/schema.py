"""The tables of the service's database. Imports nothing of ours."""

from __future__ import annotations

#: Raised when a table changes; a database with another number is refused, not guessed at.
VERSION = 2

#: Tables that a reset empties; keys and the clock are not among them.
DATA_TABLES = (
    "jobs", "pages", "documents", "page_errors", "robots_blocked", "usage", "activity", "replays", "deliveries",
    "page_cache", "counters",
)  # fmt: skip

SCHEMA = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,                  -- batch_scrape, crawl or scrape
    team TEXT NOT NULL,
    key_name TEXT NOT NULL,
    url TEXT NOT NULL,                   -- of a batch: its first
    status TEXT NOT NULL,                -- scraping, completed, failed, cancelled
    error TEXT,
    created REAL NOT NULL,
    ended REAL,
    expected INTEGER NOT NULL DEFAULT 0, -- pages that may still be attempted or were: what is reserved of the credits
    documents INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    known INTEGER NOT NULL DEFAULT 0,    -- pages waiting or in flight
    credits INTEGER NOT NULL DEFAULT 0,
    options BLOB NOT NULL DEFAULT '{}',  -- scrape options, snake_case
    plan BLOB NOT NULL DEFAULT '{}',     -- the job's own options, snake_case
    shown BLOB NOT NULL DEFAULT '{}',    -- scrape options as they came, for the list of active crawls
    webhook BLOB
);
CREATE INDEX jobs_running ON jobs (status) WHERE status = 'scraping';
CREATE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;

CREATE TABLE pages (                     -- what a running job has yet to do; a crawl keeps what is done, to resume
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT NOT NULL,
    url TEXT NOT NULL,
    depth INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,     -- 1 where the page counts, 2 where it does not (blocked, or met twice)
    final TEXT,                          -- where its redirects led
    mark INTEGER NOT NULL DEFAULT 0,     -- the last place that was known then
    options BLOB                         -- its own scrape options, where they are not the job's
);
CREATE INDEX pages_of_job ON pages (job, done);

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
CREATE INDEX activity_of_team ON activity (team, seq);

CREATE TABLE replays (                   -- what was answered under an idempotency key
    team TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body BLOB NOT NULL,
    forget REAL NOT NULL,
    PRIMARY KEY (team, key)
);
CREATE TABLE deliveries (                -- webhooks that are not acknowledged yet
    id TEXT PRIMARY KEY, job TEXT NOT NULL, url TEXT NOT NULL, headers BLOB NOT NULL, body BLOB NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (due);
CREATE TABLE page_cache (key BLOB PRIMARY KEY, stored REAL NOT NULL, body BLOB NOT NULL);
CREATE INDEX page_cache_age ON page_cache (stored);

CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
CREATE TABLE api_keys (digest TEXT PRIMARY KEY, name TEXT NOT NULL, team TEXT NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
