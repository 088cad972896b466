//go:build darwin || linux

package sbserver

import (
	"strings"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// Attach routes a link to the node of its address.
func (c *client) Attach(l *amqp10.Link) {
	address := l.Address()
	node := entityPath(address)
	op := OpAttachReceiver
	if l.Incoming() {
		op = OpAttachSender
	}
	switch {
	case strings.EqualFold(node, cbsAddress):
		c.attachRequests(l, node, op, c.putToken)
	case hasSuffixFold(node, managementSuffix):
		path := node[:len(node)-len(managementSuffix)]
		c.attachRequests(l, node, op, func(r *request) response { return c.manage(path, r) })
	case address == "":
		l.Refuse(amqp10.Errorf(amqp10.ErrInvalidField, "The link '%s' has no address.", l.Name()))
	default:
		c.perform(operation{
			op: op, entity: node, link: l,
			run: func() *amqp10.Error {
				if err := c.authorize(node); err != nil {
					return err
				}
				if l.Incoming() {
					return c.attachSender(l, node)
				}
				return c.attachReceiver(l, node)
			},
			reply: func(err *amqp10.Error) {
				if err != nil {
					l.Refuse(err)
				}
			},
		})
	}
}

// attachRequests attaches either link of a node for requests.
func (c *client) attachRequests(l *amqp10.Link, node string, op Op, handle func(*request) response) {
	c.perform(operation{
		op: op, entity: node, link: l,
		run: func() *amqp10.Error {
			if node != cbsAddress {
				if err := c.authorize(node); err != nil {
					return err
				}
			}
			if l.Incoming() {
				l.AcceptIncoming(&requests{client: c, link: l, handle: handle}, amqp10.Reply{MaxMessageSize: 1 << 20})
				return nil
			}
			r := &replies{client: c, link: l}
			if t := l.Request().Target; t != nil {
				r.address = t.Address
			}
			c.mu.Lock()
			c.replies[r.address] = r
			c.mu.Unlock()
			if !l.AcceptOutgoing(r, amqp10.Reply{}) {
				r.Closed()
			}
			return nil
		},
		reply: func(err *amqp10.Error) {
			if err != nil {
				l.Refuse(err)
			}
		},
	})
}
