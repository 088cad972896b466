package filetransport

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// message has the fields of a file's name in a queue's directory, joined by "_":
//
//	20261120T143100.123456789Z_1_LZ4KQDOIQYUQ3T5OJNYWGYN7SA_new
//
// A receiver may claim any message that is due. A held message is due when its lock expires.
//
// Every change is one rename or removal of the file with exactly this name, so of two processes that change one name,
// one wins. Each claim has a new token, so a held name is never used again: a receiver whose lock another one has taken
// over cannot touch the message (C6, C16). A kill or a power failure leaves the name before a change or after it; both
// are valid (C7).
type message struct {
	at    time.Time // due: it may be claimed from this time on
	count int       // DeliveryCount of the current delivery, or else of the next one
	id    string    // NativeID, new for every Send
	state string    // "new", "back", or, while it is locked, "held-" and the claim's token
}

const stamp = "20060102T150405.000000000Z" // for times in UTC; their texts sort by time

func (m message) held() bool { return strings.HasPrefix(m.state, "held-") }
func (m message) name() string {
	return fmt.Sprintf("%s_%d_%s_%s", m.at.UTC().Format(stamp), m.count, m.id, m.state)
}

// parseName reports false for a name that is not that of a message. Such files are left alone.
func parseName(name string) (m message, ok bool) {
	part := append(strings.Split(name, "_"), "", "", "") // at least four
	at, _ := time.Parse(stamp, part[0])                  // a wrong time does not give the same name again
	count, _ := strconv.Atoi(part[1])
	m = message{at, count, part[2], part[3]}
	return m, count > 0 && (m.held() || m.state == "new" || m.state == "back") && m.name() == name
}

// These functions return the next state of a message. A completed message has no file.
func claim(m message, lock time.Duration) message {
	if m.held() {
		m.count++ // its receiver is dead or late: this delivery counts (R34)
	}
	return message{time.Now().Add(lock), m.count, m.id, "held-" + rand.Text()}
}
func renew(m message, lock time.Duration) message {
	return message{time.Now().Add(lock), m.count, m.id, m.state}
}
func release(m message, _ time.Duration) message { return message{time.Now(), m.count, m.id, "back"} }
func abandon(m message, _ time.Duration) message {
	return message{time.Now(), m.count + 1, m.id, "back"}
}
func complete(message, time.Duration) message { return message{} }
