package headers

import "encoding/json"

// Round is one round of attempts at a message, as the header [Attempts] tells it.
type Round struct {
	// At is when the round's last attempt failed, as [FormatTime] writes it.
	At string `json:"at"`
	// Error is the type of the last error.
	Error string `json:"error"`
	// Attempts is how many attempts failed.
	Attempts int `json:"attempts"`
	// Deferrals is how often handlers had deferred the message by then.
	Deferrals int `json:"deferrals,omitempty"`
	// Action is the action after the round: "DelayedRetry" or "MoveToError".
	Action string `json:"action"`
	// Delay is that of a DelayedRetry, as time.Duration writes it.
	Delay string `json:"delay,omitempty"`
}

// MaxAttempts is the length up to which the value of the header [Attempts] is written and
// read, in bytes.
const MaxAttempts = 4 << 10

// ParseAttempts returns the rounds of attempts at a message so far, in their order, from
// the value of its header [Attempts]. At most 20 rounds are kept: the first, and the last
// ones. A value that cannot be read counts as none.
func ParseAttempts(value string) []Round {
	if value == "" || len(value) > MaxAttempts {
		return nil
	}
	var rounds []Round
	if json.Unmarshal([]byte(value), &rounds) != nil {
		return nil
	}
	return rounds
}
