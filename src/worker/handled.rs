//! A task type as a worker handles it: its handler behind its layers, and what its policy says. May import: `service`,
//! `topology`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::service::TaskService;
use crate::topology::TaskTypePolicy;

/// One task type.
#[derive(Debug)]
pub(super) struct Handled {
    pub(super) service: TaskService,
    /// How long an attempt may take where the envelope says nothing.
    pub(super) timeout: Duration,
    pub(super) quick_retries: u32,
    pub(super) quick_pause: Duration,
}

impl Handled {
    pub(super) fn new(service: TaskService, policy: Option<&TaskTypePolicy>, default: Duration) -> Self {
        Self {
            service,
            timeout: policy.and_then(|policy| policy.timeout).unwrap_or(default),
            quick_retries: policy.map_or(0, |policy| policy.quick_retries),
            quick_pause: policy.map_or(Duration::ZERO, |policy| policy.quick_pause),
        }
    }
}

/// All that a worker handles, by task type.
pub(super) type Handlers = Arc<HashMap<String, Handled>>;
