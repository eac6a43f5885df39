;; Asks for the volume of a handle that no answer named.
(import "bindery:policy/cluster@0.1.0" "identify" (func $ask (param i32 i32)))
(func $sync-claim (param i32) (result i32) (call $ask (i32.const 7) (i32.const 2048)) (global.get $done))
