;; Imports what its world does not have.
(component
  (import "wasi:cli/environment@0.2.0" (instance (export "get-arguments" (func (result (list string))))))
  (import "wasi:clocks/wall-clock@0.2.0" (instance)))
