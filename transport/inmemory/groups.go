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
	members := g.byKey[m.group]
	switch {
	case members == nil:
		if g.byKey == nil {
			g.byKey = map[string]*group{}
		}
		g.byKey[m.group] = &group{front: m}
		return true
	case members.front == m:
		return true
	}
	m.state = waiting
	members.waiting.pushBack(m)
	g.waiting++
	return false
}

// leave is called when m has left the queue. It returns the new front message of its
// group, or nil.
func (g *groups) leave(m *message) *message {
	members := g.byKey[m.group]
	if members == nil || members.front != m {
		return nil
	}
	if members.waiting.len() == 0 {
		delete(g.byKey, m.group)
		return nil
	}
	members.front = members.waiting.popFront()
	g.waiting--
	return members.front
}

// all appends the waiting messages to messages.
func (g *groups) all(messages []*message) []*message {
	for _, members := range g.byKey {
		for i := range members.waiting.len() {
			messages = append(messages, members.waiting.at(i))
		}
	}
	return messages
}
