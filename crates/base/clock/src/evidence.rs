//! Evidence that bounds the offset between both clocks.

use crate::{ClockError, ClockMap, GuestTicks, HostTicks, MAX_WIDTH, Offset, OffsetSource};
use vmtax_model::Ping;

/// All that is known of the offset, to make a [`ClockMap`] of. Any of it may be missing, and what gives least is only
/// compared with what gives most.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    pings: Vec<Ping>,
    kvm_offset: Option<i64>,
    /// The most that causes in the guest with effects on the host leave, and the pair that does.
    most: Option<(i128, HostTicks)>,
    /// The least that causes on the host with effects in the guest leave.
    least: Option<(i128, HostTicks)>,
}

impl Evidence {
    /// Begins with exchanges of stamps, in any order, and host ticks minus guest ticks as KVM itself keeps them.
    pub fn new(pings: &[Ping], kvm_offset: Option<i64>) -> Evidence {
        Evidence {
            pings: pings.to_vec(),
            kvm_offset,
            ..Evidence::default()
        }
    }

    /// Adds a pair in which the guest's stamp came before the host's: a notify before the pop it causes.
    pub fn guest_first(&mut self, guest: GuestTicks, host: HostTicks) {
        let offset = i128::from(host.0) - i128::from(guest.0);
        if self.most.is_none_or(|(most, _)| offset < most) {
            self.most = Some((offset, host));
        }
    }

    /// Adds a pair in which the host's stamp came before the guest's: an injection before its handler.
    pub fn host_first(&mut self, host: HostTicks, guest: GuestTicks) {
        let offset = i128::from(host.0) - i128::from(guest.0);
        if self.least.is_none_or(|(least, _)| offset > least) {
            self.least = Some((offset, host));
        }
    }

    /// The map that this gives: by KVM's offset unless stamps exclude it, else by exchanges or by causality, whichever
    /// bounds it closer. Causality takes the offset as constant.
    ///
    /// # Errors
    /// [`ClockError::NoEvidence`], [`ClockError::Contradiction`], [`ClockError::Jumped`].
    pub fn map(&self) -> Result<ClockMap, ClockError> {
        let pings = self.pings.iter().copied();
        let pings: Vec<Ping> = pings.filter(|p| sensible(Offset::from(*p))).collect();
        self.pings
            .iter()
            .copied()
            .try_for_each(|ping| checked(ping).map(drop))?;
        let causes = self.causes()?;
        if let Some(kvm) = self.kvm_offset {
            let exact = Offset {
                low: kvm.into(),
                high: kvm.into(),
            };
            let by_pings = pings.iter().map(|p| Offset::from(*p));
            let mut all = by_pings.chain(causes.map(|(offset, _)| offset));
            if all.all(|bounds| bounds.and(exact).is_possible()) {
                return Ok(ClockMap::constant(exact, OffsetSource::Kvm, None));
            }
        }
        let map = || ClockMap::of(&pings, self.kvm_offset);
        let by_exchanges = (!pings.is_empty()).then(map).transpose()?;
        let Some((offset, at)) = causes else {
            return by_exchanges.ok_or(ClockError::NoEvidence);
        };
        let by_causes = ClockMap::constant(offset, OffsetSource::Causality, self.kvm_offset);
        match by_exchanges {
            None => Ok(by_causes),
            // A clock that moves has no one offset for causes to bound.
            Some(map) if map.moved() > 0 => Ok(map),
            Some(map) => {
                let mut both = pings.iter().map(|p| Offset::from(*p).and(offset));
                if let Some(Offset { low, high }) = both.find(|both| !both.is_possible()) {
                    return Err(ClockError::Contradiction {
                        at: at.0,
                        low,
                        high,
                    });
                }
                let is_closer = by_causes.bound() < map.bound();
                Ok(if is_closer { by_causes } else { map })
            }
        }
    }

    /// The offset that causes and effects leave, where they bound it on both sides, with the host's time of one.
    fn causes(&self) -> Result<Option<(Offset, HostTicks)>, ClockError> {
        let (Some((low, _)), Some((high, at))) = (self.least, self.most) else {
            return Ok(None);
        };
        if low > high {
            return Err(ClockError::Contradiction {
                at: at.0,
                low,
                high,
            });
        }
        let offset = Offset { low, high };
        Ok(sensible(offset).then_some((offset, at)))
    }
}

/// Refuses exchanges that no offset fits.
pub(crate) fn checked(ping: Ping) -> Result<Ping, ClockError> {
    match ping.low > ping.high {
        false => Ok(ping),
        true => Err(ClockError::Contradiction {
            at: ping.at,
            low: ping.low.into(),
            high: ping.high.into(),
        }),
    }
}

/// Returns true if an interval is possible and narrow enough to be useful.
fn sensible(offset: Offset) -> bool {
    offset.is_possible() && offset.width() <= MAX_WIDTH
}
