;; Asks for nodes whose names are 60 KiB long.
(import "bindery:policy/cluster@0.1.0" "get-node" (func $ask (param i32 i32 i32)))
(func $sync-claim (param i32) (result i32)
  (loop $again (call $ask (i32.const 4096) (i32.const 61440) (i32.const 2048)) (br $again))
  (unreachable))
