;; Searches the index for ever, which is the host's work and costs hardly any fuel.
(import "bindery:policy/cluster@0.1.0" "list-access-sets" (func $ask (param i32 i32)))
(func $sync-claim (param i32) (result i32)
  (loop $again (call $ask (i32.const 1) (i32.const 2048)) (br $again))
  (unreachable))
