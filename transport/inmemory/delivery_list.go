package inmemory

// deliveryList is a receiver's unsettled deliveries, in the order of delivery.
type deliveryList struct {
	first, last *delivery
	count       int
}

func (l *deliveryList) add(d *delivery) {
	d.prev, d.next = l.last, nil
	if d.prev != nil {
		d.prev.next = d
	} else {
		l.first = d
	}
	l.last = d
	l.count++
}

func (l *deliveryList) remove(d *delivery) {
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		l.first = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		l.last = d.prev
	}
	d.prev, d.next = nil, nil
	l.count--
}
