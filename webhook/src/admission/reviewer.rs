//! Who says what is wrong with an object.

use bindery_controller::{Binder, Port, ReviewError, Reviewed, Sight};
use bindery_core::Finding;

/// Who says what is wrong with an object that is about to be written.
pub trait Reviewer: Send + Sync + 'static {
    /// What is wrong with the object, as far as `sight` shows.
    ///
    /// # Errors
    ///
    /// Nobody can say, and why.
    fn review(
        &self,
        reviewed: Reviewed,
        sight: Sight,
    ) -> impl Future<Output = Result<Vec<Finding>, ReviewError>> + Send;
}

impl<P: Port> Reviewer for Binder<P> {
    fn review(
        &self,
        reviewed: Reviewed,
        sight: Sight,
    ) -> impl Future<Output = Result<Vec<Finding>, ReviewError>> + Send {
        Self::review(self, reviewed, sight)
    }
}
