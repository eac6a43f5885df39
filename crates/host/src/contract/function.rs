//! The exported functions, whose types are checked once.
//!
//! The generated bindings check the types of all five functions for every instance, that is, for every
//! decision; this took more than half of a decision's time.

use std::marker::PhantomData;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    ComponentExportIndex, ComponentNamedList, Instance, InstancePre, Lift, Lower, TypedFunc,
};
use wasmtime::error::Context as _;
use wasmtime::{Result, Store, bail};

use crate::call::Call;

/// A function of a component, with parameters and result of these types.
pub(super) struct Function<Params, Answer> {
    index: ComponentExportIndex,
    types: PhantomData<fn(Params) -> Answer>,
}

impl<Params, Answer> Function<Params, Answer>
where
    Params: ComponentNamedList + Lower,
    (Answer,): ComponentNamedList + Lift,
{
    /// The function of that name in an exported interface.
    ///
    /// # Errors
    ///
    /// There is none, or it has another type.
    pub(super) fn of(
        component: &InstancePre<Call>,
        interface: &ComponentExportIndex,
        name: &str,
    ) -> Result<Self> {
        match component.component().get_export(Some(interface), name) {
            None => bail!("it exports no function {name}"),
            Some((ComponentItem::ComponentFunc(function), index)) => {
                function
                    .typecheck::<Params, (Answer,)>(&component.instance_type())
                    .with_context(|| format!("its function {name} has another type"))?;
                Ok(Self { index, types: PhantomData })
            }
            Some(_) => bail!("its export {name} is not a function"),
        }
    }

    /// Calls the function in an instance of its component.
    pub(super) fn call(
        &self,
        store: &mut Store<Call>,
        instance: &Instance,
        params: Params,
    ) -> Result<Answer> {
        let Some(function) = instance.get_func(&mut *store, self.index) else {
            bail!("the instance is of another component");
        };
        #[allow(unsafe_code, reason = "see the safety comment")]
        // SAFETY: `of` checked the type. The index names one export of one component; with another component
        // `get_func` panics or finds nothing. All instances of a component have the component's types.
        let function = unsafe { TypedFunc::<Params, (Answer,)>::new_unchecked(function) };
        Ok(function.call(store, params)?.0)
    }
}
