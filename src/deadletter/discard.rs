//! Discards dead letters in batches, each told of in the audit log.
//!
//! May import: `store`. Dying between two batches leaves the rest open; the same command goes on with it. What arrives after
//! the start is left alone.

use tidegate_core::dead_letter_filter::Filter;

use crate::store::{
    Store, StoreError,
    audit::{MAX_WHO_BYTES, MAX_WHY_BYTES},
    dead_letters::{discard::Discard, groups::Counts},
};

/// Who wants something done to dead letters, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    who: String,
    why: String,
}

/// Why it is no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReasonError {
    /// Nobody is named, or too long.
    #[error("name who does it, in 1 to {MAX_WHO_BYTES} bytes")]
    Who,
    /// Nothing is said, or too much.
    #[error("say why, in 1 to {MAX_WHY_BYTES} bytes")]
    Why,
}

impl Reason {
    /// Who and why; neither is blank, too long or holds U+0000.
    pub fn new(who: &str, why: &str) -> Result<Self, ReasonError> {
        let fits = |text: &str, most| !text.is_empty() && text.len() <= most && !text.contains('\0');
        let (who, why) = (who.trim(), why.trim());
        if !fits(who, MAX_WHO_BYTES) {
            return Err(ReasonError::Who);
        }
        if !fits(why, MAX_WHY_BYTES) {
            return Err(ReasonError::Why);
        }
        let (who, why) = (who.to_owned(), why.to_owned());
        Ok(Self { who, why })
    }

    /// Who.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Why.
    pub fn why(&self) -> &str {
        &self.why
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// So many are discarded now.
    pub discarded: u64,
    /// So many more that were meant were not open: replayed, discarded before, or claimed by a replay meanwhile.
    pub not_open: u64,
}

/// How many dead letters `filter` means, by state.
pub async fn preview(store: &Store, filter: &Filter) -> Result<Counts, StoreError> {
    store.dead_letters().count(filter).await
}

/// Discards what `filter` means and is open. `progress` is told how many are done after each batch.
pub async fn discard(
    store: &Store,
    filter: &Filter,
    reason: &Reason,
    mut progress: impl FnMut(u64),
) -> Result<Discarded, StoreError> {
    let letters = store.dead_letters();
    let until = letters.now().await?;
    let meant = letters.count(filter).await?;
    let of = Discard {
        filter,
        until,
        who: &reason.who,
        why: &reason.why,
    };
    let (mut discarded, mut after) = (0, None);
    loop {
        let (of_batch, next) = letters.discard(&of, after).await?;
        discarded += of_batch;
        if of_batch > 0 {
            progress(discarded);
        }
        if next.is_none() {
            break;
        }
        after = next;
    }
    let meant = u64::try_from(meant.total()).unwrap_or_default();
    Ok(Discarded {
        discarded,
        not_open: meant.saturating_sub(discarded),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_a_name_and_a_text() {
        assert!(Reason::new("ann", " no card ").is_ok_and(|reason| reason.why == "no card"));
        assert_eq!(Reason::new(" ", "why"), Err(ReasonError::Who));
        assert_eq!(Reason::new(&"x".repeat(256), "why"), Err(ReasonError::Who));
        for bad in ["", " \n", "a\0", &"x".repeat(4_097)] {
            assert_eq!(Reason::new("ann", bad), Err(ReasonError::Why));
        }
    }
}
