;; Has the right export by name, with nothing in it.
(component
  (instance $empty)
  (export "bindery:policy/decide@0.1.0" (instance $empty)))
