;; Grows a table for ever.
(table $table 1 funcref)
(func $sync-claim (param i32) (result i32)
  (loop $again (drop (table.grow $table (ref.null func) (i32.const 100))) (br $again))
  (unreachable))
