package inmemory

// groups holds the messages of a queue that wait for others of their group. For each
// group with messages in the queue, one message is in front: it is ready, delayed because
// it was postponed, or in flight, and the others wait until it has left the queue. The
// queue's lock guards it.
type groups struct {
	byKey   map[string]*group
	waiting int
}

type group struct {
	front   *message
	waiting ring[*message]
}

// enter reports whether a ready message may be delivered. If not, it waits for the
// message in front of its group.
func (g *groups) enter(m *message) bool {
	of := g.byKey[m.group]
	switch {
	case of == nil:
		if g.byKey == nil {
			g.byKey = map[string]*group{}
		}
		g.byKey[m.group] = &group{front: m}
		return true
	case of.front == m:
		return true
	}
	m.state = waiting
	of.waiting.pushBack(m)
	g.waiting++
	return false
}

// leave is called when m has left the queue. It returns the new front message of its
// group, or nil.
func (g *groups) leave(m *message) *message {
	of := g.byKey[m.group]
	if of == nil || of.front != m {
		return nil
	}
	if of.waiting.len() == 0 {
		delete(g.byKey, m.group)
		return nil
	}
	of.front = of.waiting.popFront()
	g.waiting--
	return of.front
}

// all appends the waiting messages to messages.
func (g *groups) all(messages []*message) []*message {
	for _, of := range g.byKey {
		for i := range of.waiting.len() {
			messages = append(messages, of.waiting.at(i))
		}
	}
	return messages
}
