-- Schema 4. Times are microseconds since 1970 in UTC. States are the numbers in store/rows.rs.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- The journal. `seq` is the order of acceptance and never changes; order by it, not by any clock.
CREATE TABLE messages (
  seq         INTEGER PRIMARY KEY,
  id          BLOB NOT NULL UNIQUE,
  sender      TEXT NOT NULL COLLATE NOCASE,
  recipient   TEXT NOT NULL COLLATE NOCASE,
  kind        TEXT NOT NULL,
  in_reply_to BLOB,
  thread      BLOB NOT NULL,
  sent_at     INTEGER NOT NULL,
  accepted_at INTEGER NOT NULL,
  expires_at  INTEGER,
  door        TEXT NOT NULL,
  scope       TEXT NOT NULL,
  native_id   TEXT NOT NULL,
  verified    INTEGER NOT NULL,
  route       TEXT,
  via         TEXT,
  -- Of the content: the same for the same message, however often it comes in.
  digest      BLOB NOT NULL,
  -- Of the row: what the digest leaves out, so that no damage passes for the truth.
  seal        BLOB NOT NULL,
  -- Of the row and of everything before it: see store/chain.rs.
  chain       BLOB NOT NULL DEFAULT x'',
  -- The long ones last: SQLite reads the columns before them without them.
  metadata    TEXT,
  signed      BLOB,
  body        TEXT NOT NULL
);
-- A conversation's first message is found by its id, so only the others need the index.
CREATE INDEX messages_by_thread ON messages (thread) WHERE thread <> id;
CREATE INDEX messages_by_parent ON messages (in_reply_to, accepted_at) WHERE in_reply_to IS NOT NULL;
CREATE INDEX messages_recent_replies ON messages (accepted_at) WHERE in_reply_to IS NOT NULL;

-- What a message is called in each protocol it came in or went out by.
CREATE TABLE native_ids (
  door  TEXT NOT NULL,
  id    TEXT NOT NULL,
  scope TEXT NOT NULL COLLATE NOCASE,
  seq   INTEGER NOT NULL,
  PRIMARY KEY (door, id, scope)
) WITHOUT ROWID;

-- The outbox and what became of it. `id` is seq * 65536 + n, so a message's deliveries lie together.
-- `due_at` is when something has to happen next: the attempt, the retry, the end of the lease.
CREATE TABLE deliveries (
  id              INTEGER PRIMARY KEY,
  agent           TEXT NOT NULL COLLATE NOCASE,
  door            TEXT NOT NULL,
  route           TEXT NOT NULL,
  state           INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  fence           INTEGER NOT NULL DEFAULT 0,
  due_at          INTEGER NOT NULL,
  expires_at      INTEGER,
  owner           TEXT,
  note            TEXT,
  queued_at       INTEGER NOT NULL,
  in_flight_at    INTEGER,
  delivered_at    INTEGER,
  seen_at         INTEGER,
  acknowledged_at INTEGER,
  ended_at        INTEGER
);
-- Which of them are pending, or not at their end, is compared and not looked up with IN: for three numbers or more SQLite
-- makes a table of them, again for each row and each index that is written. Queries say it in the same words.
CREATE INDEX deliveries_due ON deliveries (door, due_at) WHERE (state < 2 OR state = 6);
CREATE INDEX deliveries_waiting ON deliveries (agent, id) WHERE state IN (2, 3);
CREATE INDEX deliveries_done ON deliveries (agent, id) WHERE state IN (4, 7);
CREATE INDEX deliveries_expiring ON deliveries (expires_at) WHERE expires_at IS NOT NULL AND (state < 4 OR state = 6);

CREATE TABLE agents (
  name          TEXT PRIMARY KEY COLLATE NOCASE,
  role          TEXT,
  team          TEXT COLLATE NOCASE,
  routes        TEXT NOT NULL,
  registered_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE aliases (
  alias TEXT PRIMARY KEY COLLATE NOCASE,
  agent TEXT NOT NULL COLLATE NOCASE
) WITHOUT ROWID;

CREATE TABLE teams (
  id         TEXT PRIMARY KEY COLLATE NOCASE,
  title      TEXT NOT NULL,
  composite  INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) WITHOUT ROWID;

-- What a door remembers between runs: how far it has read a folder, what it has complained about.
CREATE TABLE notes (
  door  TEXT NOT NULL,
  topic TEXT NOT NULL,
  key   TEXT NOT NULL,
  value TEXT NOT NULL,
  at    INTEGER NOT NULL,
  PRIMARY KEY (door, topic, key)
) WITHOUT ROWID;

-- Filled behind the journal, outside the way of a message: see store/search.rs.
CREATE VIRTUAL TABLE search USING fts5 (body, content = 'messages', content_rowid = 'seq', tokenize = 'unicode61');

-- What follows came with schema 2. It stands at the end, so that everything above lies in the same pages as before.

-- Where a row of the journal does not follow from the row before it, and why that is as it should be. `previous` is
-- the hash of the row that it followed and that is gone; NULL where that is lost.
CREATE TABLE chain_breaks (
  seq      INTEGER PRIMARY KEY,
  previous BLOB,
  reason   TEXT NOT NULL,
  at       INTEGER NOT NULL
);

-- Messages that a rule against storms or costs has stopped, until a person lets them go on. `subject` is what the
-- rule counts by: a conversation, a pair of agents or an agent.
CREATE TABLE stops (
  seq     INTEGER NOT NULL,
  subject TEXT NOT NULL,
  reason  TEXT NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (seq, subject)
) WITHOUT ROWID;
CREATE INDEX stops_by_subject ON stops (subject);

-- What a person has let go on: its rule counts from there.
CREATE TABLE resumed (
  subject TEXT PRIMARY KEY,
  seq     INTEGER NOT NULL,
  at      INTEGER NOT NULL
) WITHOUT ROWID;

-- What agents with a budget have spent, by the minute.
CREATE TABLE spending (
  agent    TEXT NOT NULL COLLATE NOCASE,
  minute   INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  tokens   INTEGER NOT NULL,
  PRIMARY KEY (agent, minute)
) WITHOUT ROWID;

-- Tasks and who has taken them on. A row stays when its claim ends, because its fence must only rise.
CREATE TABLE claims (
  task       TEXT PRIMARY KEY COLLATE NOCASE,
  fence      INTEGER NOT NULL,
  holder     TEXT COLLATE NOCASE,
  note       TEXT,
  claimed_at INTEGER NOT NULL,
  lease      INTEGER NOT NULL,
  until      INTEGER NOT NULL,
  -- Whether it was won among all linked hubs.
  everywhere INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX claims_held ON claims (holder) WHERE holder IS NOT NULL;

-- What the link to other hubs is asked, and what it answers. Nobody waits long for it.
CREATE TABLE claim_asks (
  id     INTEGER PRIMARY KEY,
  ask    TEXT NOT NULL,
  at     INTEGER NOT NULL,
  answer TEXT
);

-- Files that somebody works at, as patterns of paths within a tree.
CREATE TABLE reservations (
  id         INTEGER PRIMARY KEY,
  holder     TEXT NOT NULL COLLATE NOCASE,
  repository TEXT NOT NULL,
  tree       TEXT NOT NULL,
  pattern    TEXT NOT NULL,
  shared     INTEGER NOT NULL,
  note       TEXT,
  made_at    INTEGER NOT NULL,
  lease      INTEGER NOT NULL,
  until      INTEGER NOT NULL
);

-- What was done with claims, reservations and stops, for whoever watches. `after` is the last message before it.
CREATE TABLE activity (
  id     INTEGER PRIMARY KEY,
  after  INTEGER NOT NULL,
  at     INTEGER NOT NULL,
  agent  TEXT NOT NULL COLLATE NOCASE,
  what   TEXT NOT NULL,
  thing  TEXT NOT NULL,
  detail TEXT
);

-- What came in over the swarm door, under the names that its protocol gives the queue of messages.
-- The scope of such a message is "swarm sender recipient"; ids of agents have no spaces.
CREATE VIEW message_queue AS
SELECT m.seq AS id,
       m.native_id AS message_id,
       substr(m.scope, 1, 36) AS swarm_id,
       substr(m.scope, 38, instr(substr(m.scope, 38), ' ') - 1) AS sender_id,
       coalesce(m.metadata ->> '$."swarm.type"', m.kind) AS type,
       m.body AS content,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.accepted_at / 1000000.0, 'unixepoch') AS received_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(d.acknowledged_at, d.seen_at, d.ended_at) / 1000000.0, 'unixepoch') AS processed_at,
       CASE WHEN d.state IN (3, 4) THEN 'completed' WHEN d.state IN (5, 7) THEN 'failed' ELSE 'pending' END AS status
FROM messages m LEFT JOIN deliveries d ON d.id = m.seq * 65536
WHERE m.door = 'swarm' AND length(m.scope) > 36;

-- What a peer has not got yet, by peer: a message waits for those before it.
CREATE INDEX deliveries_to_peers ON deliveries (agent, id) WHERE door = 'swarm' AND (state < 2 OR state = 6);

-- How many messages wait in each mailbox, and how many of them its reader has not been shown. The triggers below keep
-- both numbers, so that no query counts a mailbox row by row.
CREATE TABLE mailboxes (
  agent   TEXT PRIMARY KEY COLLATE NOCASE,
  unseen  INTEGER NOT NULL,
  waiting INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER deliveries_inserted AFTER INSERT ON deliveries WHEN new.state = 2 OR new.state = 3 BEGIN
  INSERT INTO mailboxes (agent, unseen, waiting) VALUES (new.agent, new.state = 2, 1)
  ON CONFLICT (agent) DO UPDATE SET unseen = unseen + excluded.unseen, waiting = waiting + 1;
END;

CREATE TRIGGER deliveries_updated AFTER UPDATE OF state, agent ON deliveries
WHEN (old.state <> new.state OR old.agent <> new.agent)
  AND (old.state = 2 OR old.state = 3 OR new.state = 2 OR new.state = 3) BEGIN
  UPDATE mailboxes SET unseen = unseen - (old.state = 2), waiting = waiting - 1
  WHERE agent = old.agent AND (old.state = 2 OR old.state = 3);
  INSERT INTO mailboxes (agent, unseen, waiting) SELECT new.agent, new.state = 2, 1 WHERE new.state = 2 OR new.state = 3
  ON CONFLICT (agent) DO UPDATE SET unseen = unseen + excluded.unseen, waiting = waiting + 1;
END;

CREATE TRIGGER deliveries_deleted AFTER DELETE ON deliveries WHEN old.state = 2 OR old.state = 3 BEGIN
  UPDATE mailboxes SET unseen = unseen - (old.state = 2), waiting = waiting - 1 WHERE agent = old.agent;
END;
