//! What the policies of a claim require of volumes before they judge any.

use bindery_core::{ColumnRequirement, Narrowed, Quantity};

use crate::chain::Applied;

impl Applied<'_> {
    /// What the policies require; `None` for nothing.
    pub(crate) fn required(&self) -> Option<Narrowed> {
        let (columns, at_most) = (self.requirements().collect::<Vec<_>>(), self.at_most());
        (!columns.is_empty() || at_most.is_some()).then_some(Narrowed { columns, at_most })
    }

    /// The largest capacity that all policies allow.
    pub(crate) fn at_most(&self) -> Option<Quantity> {
        let bounds = self.asked.iter().filter_map(|asked| asked.context.narrowing()?.at_most.as_ref());
        bounds.map(|bound| bound.quantity).min()
    }

    /// What the policies require of columns.
    pub(crate) fn requirements(&self) -> impl Iterator<Item = ColumnRequirement> {
        self.asked.iter().flat_map(|asked| {
            let columns = &asked.matcher.metadata().columns;
            let requirements =
                asked.context.narrowing().into_iter().flat_map(|narrowing| &narrowing.requirements);
            requirements.filter_map(|needed| {
                let column = columns.get(needed.column as usize)?.clone();
                Some(ColumnRequirement { column, operator: needed.operator, values: needed.values.clone() })
            })
        })
    }
}
