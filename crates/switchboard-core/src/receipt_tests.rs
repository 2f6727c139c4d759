use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{AgentId, DeliveryId, Milestones, Name, Route};

const FAILED: DeliveryState = DeliveryState::Failed { retry_at: Timestamp::UNIX_EPOCH };

fn receipt(states: &[DeliveryState]) -> Receipt {
    let id = MessageId::from_parts(1, 1);
    let delivery = |(number, state): (i64, &DeliveryState)| Delivery {
        id: DeliveryId(number),
        message: id,
        agent: AgentId::human(),
        route: Route::Mailbox { agent: Name::human() },
        state: *state,
        attempts: 1,
        note: None,
        milestones: Milestones::default(),
    };
    Receipt::of(id, Address::EVERYONE, (1..).zip(states).map(delivery).collect())
}

#[test]
fn receipt_reports_weakest_state() {
    use DeliveryState::{Acknowledged, Delivered, Expired, InFlight, Queued, Refused, Seen};
    let table: [(&[DeliveryState], OverallState, usize); 16] = [
        (&[Queued], OverallState::Pending, 0),
        (&[InFlight], OverallState::Pending, 0),
        (&[FAILED], OverallState::Pending, 0),
        (&[Refused], OverallState::Failed, 0),
        (&[Expired], OverallState::Expired, 0),
        (&[Delivered], OverallState::Delivered, 1),
        (&[Seen], OverallState::Seen, 1),
        (&[Acknowledged], OverallState::Acknowledged, 1),
        (&[Acknowledged, Queued, Refused], OverallState::Pending, 1),
        (&[Refused, FAILED, Expired], OverallState::Pending, 0),
        (&[Delivered, Expired, Refused], OverallState::Failed, 1),
        (&[Acknowledged, Expired, Seen], OverallState::Expired, 2),
        (&[Acknowledged, Seen, Delivered], OverallState::Delivered, 3),
        (&[Seen, Acknowledged], OverallState::Seen, 2),
        (&[Acknowledged, Acknowledged], OverallState::Acknowledged, 2),
        (&[], OverallState::Delivered, 0),
    ];
    for (states, overall, reached) in table {
        let receipt = receipt(states);
        assert_eq!((receipt.overall_state(), receipt.reached_count()), (overall, reached), "{states:?}");
    }
}

fn any_state() -> impl Strategy<Value = DeliveryState> {
    prop::sample::select(vec![
        DeliveryState::Queued,
        DeliveryState::InFlight,
        FAILED,
        DeliveryState::Refused,
        DeliveryState::Expired,
        DeliveryState::Delivered,
        DeliveryState::Seen,
        DeliveryState::Acknowledged,
    ])
}

proptest! {
    #[test]
    fn receipt_never_exceeds_any_delivery(
        states in prop::collection::vec(any_state(), 1..6),
    ) {
        let receipt = receipt(&states);
        let every = |true_of: fn(DeliveryState) -> bool| states.iter().copied().all(true_of);
        let borne_out = match receipt.overall_state() {
            OverallState::Pending => !every(|state| !state.is_pending()),
            OverallState::Failed => every(|state| !state.is_pending()) && states.contains(&DeliveryState::Refused),
            OverallState::Expired => every(|state| !state.is_pending()) && states.contains(&DeliveryState::Expired),
            OverallState::Delivered => every(|state| state.is_waiting() || state == DeliveryState::Acknowledged),
            OverallState::Seen => every(|state| matches!(state, DeliveryState::Seen | DeliveryState::Acknowledged)),
            OverallState::Acknowledged => every(|state| state == DeliveryState::Acknowledged),
        };
        prop_assert!(borne_out, "{:?}", receipt.overall_state());
        let have_it = |state: &DeliveryState| state.is_waiting() || *state == DeliveryState::Acknowledged;
        prop_assert_eq!(receipt.reached_count(), states.iter().filter(|state| have_it(state)).count());
    }
}
