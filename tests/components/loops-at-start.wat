;; Loops in its start function, before any of its exports is called.
(func $boot (loop $again (br $again)))
(start $boot)
(func $sync-claim (param i32) (result i32) (global.get $done))
