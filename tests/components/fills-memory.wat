;; Writes 64 KiB in one instruction, again and again: little code, much work.
(func $sync-claim (param i32) (result i32)
  (loop $again (memory.fill (i32.const 65536) (i32.const 0) (i32.const 65536)) (br $again))
  (unreachable))
