;; Its outcome is failed(read(text)) with a text of 1 MiB.
(func $sync-claim (param i32) (result i32)
  (drop (memory.grow (i32.const 16)))
  (i32.store8 (i32.const 2064) (i32.const 1)) ;; outcome: failed
  (i32.store8 (i32.const 2068) (i32.const 0)) ;; failure: read
  (i32.store (i32.const 2072) (i32.const 65536))
  (i32.store (i32.const 2076) (i32.const 1048576))
  (i32.const 2048))
