;; Its answer has 17 tallies: of no volume, for the first reason, without a name.
(func $sync-claim (param i32) (result i32)
  (i32.store (i32.const 2088) (i32.const 4096))
  (i32.store (i32.const 2092) (i32.const 17))
  (i32.const 2048))
