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
fn a_receipt_says_the_least_that_is_true_of_every_delivery() {
    use DeliveryState::{Acknowledged, Delivered, Expired, InFlight, Queued, Refused, Seen};
    let table: [(&[DeliveryState], Standing, usize); 16] = [
        (&[Queued], Standing::Pending, 0),
        (&[InFlight], Standing::Pending, 0),
        (&[FAILED], Standing::Pending, 0),
        (&[Refused], Standing::Failed, 0),
        (&[Expired], Standing::Expired, 0),
        (&[Delivered], Standing::Delivered, 1),
        (&[Seen], Standing::Seen, 1),
        (&[Acknowledged], Standing::Acknowledged, 1),
        (&[Acknowledged, Queued, Refused], Standing::Pending, 1),
        (&[Refused, FAILED, Expired], Standing::Pending, 0),
        (&[Delivered, Expired, Refused], Standing::Failed, 1),
        (&[Acknowledged, Expired, Seen], Standing::Expired, 2),
        (&[Acknowledged, Seen, Delivered], Standing::Delivered, 3),
        (&[Seen, Acknowledged], Standing::Seen, 2),
        (&[Acknowledged, Acknowledged], Standing::Acknowledged, 2),
        (&[], Standing::Delivered, 0),
    ];
    for (states, standing, reached) in table {
        let receipt = receipt(states);
        assert_eq!((receipt.standing(), receipt.reached()), (standing, reached), "{states:?}");
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
    fn x8_a_receipt_never_claims_more_than_each_delivery_bears_out(
        states in prop::collection::vec(any_state(), 1..6),
    ) {
        let receipt = receipt(&states);
        let every = |true_of: fn(DeliveryState) -> bool| states.iter().copied().all(true_of);
        let borne_out = match receipt.standing() {
            Standing::Pending => !every(|state| !state.is_pending()),
            Standing::Failed => every(|state| !state.is_pending()) && states.contains(&DeliveryState::Refused),
            Standing::Expired => every(|state| !state.is_pending()) && states.contains(&DeliveryState::Expired),
            Standing::Delivered => every(|state| state.is_waiting() || state == DeliveryState::Acknowledged),
            Standing::Seen => every(|state| matches!(state, DeliveryState::Seen | DeliveryState::Acknowledged)),
            Standing::Acknowledged => every(|state| state == DeliveryState::Acknowledged),
        };
        prop_assert!(borne_out, "{:?}", receipt.standing());
        let have_it = |state: &DeliveryState| state.is_waiting() || *state == DeliveryState::Acknowledged;
        prop_assert_eq!(receipt.reached(), states.iter().filter(|state| have_it(state)).count());
    }
}
