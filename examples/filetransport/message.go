package filetransport

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// message is what the name of a file in a queue's directory says about the message in it, joined by "_":
//
//	20261120T143100.123456789Z_1_LZ4KQDOIQYUQ3T5OJNYWGYN7SA_new
//
// A receiver may claim any message whose time has come. For one that is held it comes when the lock runs out.
//
// Every change is one rename or removal. Who makes it finds the file as the name told, or none: of two who act on a name,
// one wins. Each claim has a token of its own, so a held name never comes again: a holder whose lock was taken over cannot
// touch the message (C6, C16). A kill or a power failure leaves the name before a change or after it; both are good (C7).
type message struct {
	at    time.Time // from when on it may be claimed
	count int       // DeliveryCount of the delivery under way, or else of the next one
	id    string    // NativeID, new for every Send
	state string    // "new", "back", or while it is held "held-" and the claim's token
}

const stamp = "20060102T150405.000000000Z" // for times in UTC; as texts they are in the order of time

func (m message) held() bool { return strings.HasPrefix(m.state, "held-") }
func (m message) name() string {
	return fmt.Sprintf("%s_%d_%s_%s", m.at.UTC().Format(stamp), m.count, m.id, m.state)
}

// parseName reports false for a name that is no message's. Such files are left alone.
func parseName(name string) (m message, ok bool) {
	part := append(strings.Split(name, "_"), "", "", "") // four at least
	at, _ := time.Parse(stamp, part[0])                  // what is wrong does not make the same name again
	count, _ := strconv.Atoi(part[1])
	m = message{at, count, part[2], part[3]}
	return m, count > 0 && (m.held() || m.state == "new" || m.state == "back") && m.name() == name
}

// What becomes of a message. Of one that is complete there is no file.
func claim(m message, lock time.Duration) message {
	if m.held() {
		m.count++ // its holder is dead or late: a delivery that counts (R34)
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
