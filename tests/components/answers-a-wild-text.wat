;; Its outcome is failed(read(text)) with a text that begins beyond its memory.
(func $sync-claim (param i32) (result i32)
  (i32.store8 (i32.const 2064) (i32.const 1))
  (i32.store (i32.const 2072) (i32.const 0xfffffff0))
  (i32.store (i32.const 2076) (i32.const 8))
  (i32.const 2048))
