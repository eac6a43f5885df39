;; Asks for candidates with 1,100 label requirements (empty keys, no values), which the host would have to evaluate.
(import "bindery:policy/cluster@0.1.0" "list-candidates"
  (func $ask (param i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32)))
(func $sync-claim (param i32) (result i32)
  (call $ask
    (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) ;; class, mode, attributes class
    (i32.const 1)                                                         ;; access set
    (i64.const 1) (i32.const 0) (i32.const 0)                             ;; at least: whole, nanos, format
    (i32.const 4096) (i32.const 1100)                                     ;; labels
    (i32.const 0) (i32.const 0) (i32.const 8)                             ;; after, limit
    (i32.const 2048))
  (global.get $done))
