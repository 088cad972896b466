package bridge

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
)

// Config describes a [Bridge]. The transports must be set, and at least one queue or
// topic.
type Config struct {
	// Near and Far are the two sides. The bridge carries messages in both directions: the
	// two are interchangeable.
	Near, Far Side

	// Endpoint configures the endpoints of the bridge, one for each queue that it
	// receives from. The default mode is ReceiveOnly if the transport supports it; None
	// is refused, because a crash would lose messages. InputQueue, QueueExpiry,
	// SendOnly and MessageType must be left out: the bridge decides about them. If
	// middleware changes a message, the bridge still carries the received one.
	Endpoint core.Config

	// SendTimeout limits one send to the other side. After it the message waits as in an
	// outage; it may have been accepted, and then arrives twice. Set it where the other
	// side is slow or its messages are large. The default is 30 s.
	SendTimeout time.Duration

	// GiveUpAfter is how long messages wait for a queue or topic that cannot be reached
	// although its side can: it does not exist, or other destinations accept messages.
	// After that they go to the error queue of the side that they come from, until the
	// destination can be reached. Operators set it who watch error queues rather than
	// waiting messages. The time counts in this process, from the moment when that state
	// is known. The default, 0, means no limit.
	GiveUpAfter time.Duration
}

// Side is one of the two messaging systems that a bridge connects.
type Side struct {
	// Transport is the connection. The bridge does not close it.
	Transport core.Transport

	// Queues are queues of this side to which the other side sends messages. The bridge
	// receives from a queue of the same name on the other side.
	Queues []string

	// Topics are the events of this side that the bridge publishes on the other side,
	// with the same name. It receives them in a queue that has the bridge's name. A topic
	// may be listed for both sides: no event is carried back.
	Topics []string
}

const defaultSendTimeout = 30 * time.Second

// problems collects errors, to report them together.
type problems struct{ list []error }

func (p *problems) add(format string, args ...any) {
	p.list = append(p.list, fmt.Errorf(format, args...))
}

func (p *problems) err() error { return errors.Join(p.list...) }

// check adds the mistakes in c, except for names that a transport cannot have and the
// configuration of endpoints.
func (c *Config) check(p *problems, name string) {
	if name == "" || !utf8.ValidString(name) || strings.Contains(name, hopSeparator) || strings.ContainsFunc(name, unicode.IsControl) {
		p.add("the name %q cannot be that of a bridge; use UTF-8 text without %q, such as a queue can have", name, hopSeparator)
	}
	if c.SendTimeout < 0 {
		p.add("SendTimeout is %v; it cannot be negative (0 is the default of %v)", c.SendTimeout, defaultSendTimeout)
	}
	if c.GiveUpAfter < 0 {
		p.add("GiveUpAfter is %v; it cannot be negative (0 is never)", c.GiveUpAfter)
	}
	if c.Near.isEmpty() && c.Far.isEmpty() {
		p.add("neither Near nor Far has Queues or Topics; list the queues or topics that the bridge forwards")
	}
	c.checkTransports(p)
	c.checkEndpoint(p)
	for _, queue := range c.Near.Queues {
		if slices.Contains(c.Far.Queues, queue) {
			p.add("the queue %q is listed for Near and for Far, so that its messages would go back and forth; list it where its endpoint runs", queue)
		}
	}
	c.Near.checkLists(p, "Near", name)
	c.Far.checkLists(p, "Far", name)
}

func (s *Side) isEmpty() bool { return len(s.Queues)+len(s.Topics) == 0 }

func (c *Config) checkTransports(p *problems) {
	if isNil(c.Near.Transport) {
		p.add("Near.Transport is nil; set it to a transport such as inmemory.Open()")
	}
	if isNil(c.Far.Transport) {
		p.add("Far.Transport is nil; set it to a transport such as inmemory.Open()")
	}
	if c.hasTransports() && reflect.ValueOf(c.Near.Transport).Comparable() && c.Near.Transport == c.Far.Transport {
		p.add("Near.Transport and Far.Transport are the same, so that the bridge would receive its own messages; pass two transports")
	}
}

func (c *Config) hasTransports() bool { return !isNil(c.Near.Transport) && !isNil(c.Far.Transport) }

// isNil reports whether a transport is missing, also if it is a nil pointer in an
// interface.
func isNil(t core.Transport) bool {
	if t == nil {
		return true
	}
	value := reflect.ValueOf(t)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// checkEndpoint refuses settings that the bridge makes itself, and clears them so that
// they cause no further errors.
func (c *Config) checkEndpoint(p *problems) {
	e := &c.Endpoint
	if e.Transactions == core.TransactionNone {
		p.add("Endpoint.Transactions is None, in which a crash loses messages; use ReceiveOnly, or leave it out")
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"InputQueue", e.InputQueue != ""}, {"QueueExpiry", e.QueueExpiry != 0}, {"SendOnly", e.SendOnly},
		{"MessageType", e.MessageType != nil},
	} {
		if field.set {
			p.add("Endpoint.%s is set, but the bridge decides about it; leave it out", field.name)
		}
	}
	e.InputQueue, e.QueueExpiry, e.SendOnly, e.MessageType = "", 0, false, nil
}

// checkLists refuses names that are empty or listed twice, and removes the empty ones so
// that they cause no further errors.
func (s *Side) checkLists(p *problems, side, name string) {
	for i, queue := range s.Queues {
		switch {
		case queue == "":
			p.add("%s.Queues[%d] is empty; remove it", side, i)
		case queue == name:
			p.add("%s.Queues lists %q, which is the bridge's own queue; give the bridge another name", side, queue)
		case slices.Contains(s.Queues[:i], queue):
			p.add("%s.Queues lists %q twice; remove one", side, queue)
		}
	}
	for i, topic := range s.Topics {
		switch {
		case topic == "":
			p.add("%s.Topics[%d] is empty; remove it", side, i)
		case slices.Contains(s.Topics[:i], topic):
			p.add("%s.Topics lists %q twice; remove one", side, topic)
		}
	}
	isEmpty := func(name string) bool { return name == "" }
	s.Queues, s.Topics = slices.DeleteFunc(slices.Clone(s.Queues), isEmpty), slices.DeleteFunc(slices.Clone(s.Topics), isEmpty)
}
