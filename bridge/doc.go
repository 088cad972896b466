// Package bridge carries messages from one transport to another: each side uses topics
// and queues of the other as if they were its own.
//
//	carrier, err := bridge.New("shop-bridge", bridge.Config{
//		Near: bridge.Side{Transport: postgres, Topics: []string{"shop.OrderPlaced"}},
//		Far:  bridge.Side{Transport: rabbit, Queues: []string{"billing"}},
//	})
//	...
//	err = carrier.Run(ctx) // or core.RunAll with other endpoints and carrier.Endpoints()
//
// An event that is published on the near side as shop.OrderPlaced is published on the far
// side too, and a message that is sent to the queue billing of the near side reaches the
// queue billing of the far side. Ids, headers, bodies and times stay as they are. A
// message arrives at least once, with the same id each time, so that an inbox on the
// other side handles it once.
//
// While the other side, or one destination there, cannot be reached, messages wait in the
// queue of the bridge. The outage uses up no attempts, and causes only a few log lines.
package bridge
