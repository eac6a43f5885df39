;; Has a function of the right name whose type is another.
(component
  (core module $module (func (export "answer") (result i32) (i32.const 0)))
  (core instance $instance (instantiate $module))
  (func $answer (result u32) (canon lift (core func $instance "answer")))
  (instance $decide (export "sync-claim" (func $answer)))
  (export "bindery:policy/decide@0.1.0" (instance $decide)))
