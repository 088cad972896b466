module github.com/reprise-go/reprise/transport/rabbitmq

go 1.26.0

require (
	github.com/rabbitmq/amqp091-go v1.16.0
	github.com/reprise-go/reprise v0.0.0
)

replace github.com/reprise-go/reprise => ../..
