//! Work queues and loops: sync claims and volumes, guard decisions, carry out actions, run long operations.
