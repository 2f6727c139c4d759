-- Schema 2. What came in over the swarm door, under the names that its protocol gives the queue of messages.
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
CREATE INDEX deliveries_to_peers ON deliveries (agent, id) WHERE door = 'swarm' AND state IN (0, 1, 6);
