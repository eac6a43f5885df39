;; Its outcome is failed(read(text)) with a text that is not UTF-8.
(func $sync-claim (param i32) (result i32)
  (i32.store8 (i32.const 2064) (i32.const 1))
  (i32.store (i32.const 2072) (i32.const 4096))
  (i32.store (i32.const 2076) (i32.const 2))
  (i32.store16 (i32.const 4096) (i32.const 0xfeff))
  (i32.const 2048))
