;; Asks for access-mode sets that contain a mode that does not exist.
(import "bindery:policy/cluster@0.1.0" "list-access-sets" (func $ask (param i32 i32)))
(func $sync-claim (param i32) (result i32) (call $ask (i32.const 16) (i32.const 2048)) (global.get $done))
