;; Its answer has 65 findings: by the first rule, all their texts empty.
(func $sync-claim (param i32) (result i32)
  (i32.store (i32.const 2096) (i32.const 4096))
  (i32.store (i32.const 2100) (i32.const 65))
  (i32.const 2048))
