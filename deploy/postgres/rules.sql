-- A table of rules, of which Debezium publishes each change on nightjar's topic `rules`.

CREATE TABLE rules (
    id      text PRIMARY KEY,   -- the rule's id
    rule    text NOT NULL,      -- the rule, as YAML or JSON; it need not repeat the id
    author  text,               -- who made the last change,
    reason  text,               -- and why
    deleted boolean NOT NULL DEFAULT false
);

-- Changes hold the whole row. Otherwise a rule of more than about 2 kB is left out of a change of other columns.
ALTER TABLE rules REPLICA IDENTITY FULL;

-- What Debezium reads. The table's owner can make it.
CREATE PUBLICATION nightjar_rules FOR TABLE rules;

-- Debezium's own role: it may read changes, and no other table.
CREATE ROLE debezium REPLICATION LOGIN PASSWORD 'change me';
GRANT SELECT ON rules TO debezium;
