;; A core module that exports the functions of the world `engine`; a faulty engine is spliced in front of it and
;; gives $sync-claim, which gets the address of its arguments and answers that of a decision. All else answers
;; "nothing to do". At $done there are 72 bytes of zero, which are that decision: no wait, no steps, outcome `done`,
;; no tallies, no findings, no delay. Free to write: 2048 and up to the second page.
(memory (export "memory") 3)
(global $done i32 (i32.const 1024))
(global $next (mut i32) (i32.const 65536))

;; Hands out memory of the second and third page in order, aligned to 8.
(func (export "cabi_realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
  (global.get $next)
  (global.set $next
    (i32.and (i32.add (i32.add (global.get $next) (local.get $size)) (i32.const 7)) (i32.const -8))))

(export "bindery:policy/decide@0.1.0#sync-claim" (func $sync-claim))
(func (export "bindery:policy/decide@0.1.0#sync-volume") (param i32) (result i32) (global.get $done))
(func (export "bindery:policy/decide@0.1.0#sync-operation") (param i32) (result i32) (global.get $done))
(func (export "bindery:policy/decide@0.1.0#review-claim") (param i32) (result i32) (global.get $done))
(func (export "bindery:policy/decide@0.1.0#review-volume") (param i32) (result i32) (global.get $done))
