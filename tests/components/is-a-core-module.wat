;; Not a component.
(module (memory (export "memory") 1))
