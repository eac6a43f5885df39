//! Plain data of volumes and claims, the contract's questions and actions, and the guard that checks every decision.
