;; A component of some other world.
(component
  (instance $empty)
  (export "example:other/run@1.0.0" (instance $empty)))
