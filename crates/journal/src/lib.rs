//! Decision records: what was asked, answered, decided and done; write, read and replay.
