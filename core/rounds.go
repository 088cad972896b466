package core

import "time"

// This file tells which attempt at a message a delivery is: its headers count those of
// earlier copies, and the instance that postponed it remembers those of earlier rounds.

// earlierRounds has an instance's knowledge of the rounds of a message before the current
// one.
type earlierRounds struct {
	retries      int // delayed retries
	deferrals    int
	firstFailure time.Time // for the first time, or the zero time
	deliveries   int       // in these rounds
	expected     int       // the broker's count for the next delivery, if no other instance gets one before
}

// attempt returns the number of this attempt in its round. A refused message (Refuse)
// keeps its number.
func (in *Incoming) attempt() int {
	return max(in.DeliveryCount, 1) + intHeader(in.Headers, HeaderFailures)
}

// delayedRetries returns the number of delayed retries before this delivery.
func (in *Incoming) delayedRetries() int {
	return intHeader(in.Headers, HeaderRetries) + in.earlier.retries
}

// deferrals returns the number of deferrals before this delivery.
func (in *Incoming) deferrals() int {
	return intHeader(in.Headers, HeaderDeferrals) + in.earlier.deferrals
}

// firstFailure returns when the message failed first, or the zero time.
func (in *Incoming) firstFailure() time.Time {
	if at := firstFailure(in.Headers); !at.IsZero() {
		return at
	}
	return in.earlier.firstFailure
}

// roundsAfter returns the rounds to remember when the message is given back, and its
// count rises.
func (in *Incoming) roundsAfter(counted int) earlierRounds {
	e := in.earlier
	e.expected = e.deliveries + in.DeliveryCount + counted
	return e
}
