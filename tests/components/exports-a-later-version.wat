;; Made for a version of the contract that does not exist yet.
(component
  (instance $empty)
  (export "bindery:policy/decide@0.9.0" (instance $empty)))
