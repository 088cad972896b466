package com.example;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.Exchange;
import org.springframework.amqp.rabbit.annotation.Queue;
import org.springframework.amqp.rabbit.annotation.QueueBinding;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.support.converter.Jackson2JsonMessageConverter;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The shop on RabbitMQ with Spring AMQP: java -cp 'lib/*' Shop.java URL STEP [ARGUMENT...] */
public class Shop {
  public static void main(String[] args) throws Exception {
    System.setProperty("url", args[0]);
    switch (args[1]) {
      case "listen" -> listen(Mailing.class);
      case "listenAndReturn" -> listen(Receipts.class);
      case "listenAndReturnText" -> listen(Texts.class);
      default -> send(args);
    }
  }

  static void send(String[] args) throws Exception {
    try (var context = new AnnotationConfigApplicationContext(Beans.class)) {
      var template = context.getBean(RabbitTemplate.class);
      switch (args[1]) {
        case "place" -> place(template, Integer.parseInt(args[2]), args[3]);
        case "text" -> text(template, args[2]);
        case "request" -> request(template, Integer.parseInt(args[2]), args[3]);
        case "returnFailed" -> returnFailed(template);
        default -> throw new IllegalArgumentException("there is no step " + args[1]);
      }
    }
  }

  static void place(RabbitTemplate template, int id, String customer) {
    // snippet: send
    template.convertAndSend("billing", new Order(id, customer)); // its type is in the header __TypeId__
    // end
  }

  /** As a template without a converter for JSON: the content type is text/plain. */
  static void text(RabbitTemplate template, String json) {
    var plain = new RabbitTemplate(template.getConnectionFactory());
    plain.convertAndSend("", "billing", json, message -> {
      message.getMessageProperties().setType("order.placed");
      return message;
    });
  }

  static void request(RabbitTemplate template, int id, String customer) throws Exception {
    // snippet: request
    template.setReplyTimeout(60_000);
    Message reply = template.sendAndReceive("billing",
        template.getMessageConverter().toMessage(new Order(id, customer), null));
    // end
    show(reply);
  }

  static void listen(Class<?> listener) throws Exception {
    new AnnotationConfigApplicationContext(Beans.class, Listeners.class, listener);
    System.out.println("\"listening\"");
    Thread.currentThread().join();
  }

  static void returnFailed(RabbitTemplate template) throws Exception {
    // snippet: return
    for (Message message; (message = template.receive("error")) != null; ) {
      show(message);
      template.send(message.getMessageProperties().getHeader("NServiceBus.FailedQ"), message); // with all headers
    }
    // end
  }

  /** Prints a message as one line of JSON. */
  static void show(Message message) throws Exception {
    var properties = message.getMessageProperties();
    Map<String, Object> fields = new TreeMap<>();
    fields.put("type", properties.getType());
    fields.put("messageId", properties.getMessageId());
    fields.put("correlationId", properties.getCorrelationId());
    fields.put("contentType", properties.getContentType());
    fields.put("contentEncoding", properties.getContentEncoding());
    fields.put("headers", properties.getHeaders());
    System.out.println(new ObjectMapper().writeValueAsString(
        Map.of("properties", fields, "body", new String(message.getBody(), StandardCharsets.UTF_8))));
  }
}

record Order(int id, String customer) {}

record Invoice(int order) {}

record Receipt(int order) {}

/** Of the events of billing. */
class Mailing {
  // snippet: subscribe
  @RabbitListener(bindings = @QueueBinding(
      value = @Queue(name = "mailing", durable = "true"),
      exchange = @Exchange(name = "topic:invoice.written", type = "fanout")))
  void written(Invoice invoice, Message message) throws Exception {
    Shop.show(message);
  }
  // end
}

/** Returns a value, which Spring sends to the queue of billing. */
class Receipts {
  @RabbitListener(bindings = @QueueBinding(
      value = @Queue(name = "receipts", durable = "true"),
      exchange = @Exchange(name = "topic:invoice.written", type = "fanout")))
  Receipt written(Invoice invoice) {
    return new Receipt(invoice.order());
  }
}

/** Returns a text, whose type no header tells. */
class Texts {
  @RabbitListener(bindings = @QueueBinding(
      value = @Queue(name = "texts", durable = "true"),
      exchange = @Exchange(name = "topic:invoice.written", type = "fanout")), containerFactory = "withoutConverter")
  String written(Message message) {
    return "thanks";
  }
}

@Configuration(proxyBeanMethods = false)
class Beans {
  @Bean
  CachingConnectionFactory connections() {
    return new CachingConnectionFactory(URI.create(System.getProperty("url")));
  }

  @Bean
  RabbitAdmin admin(ConnectionFactory connections) {
    return new RabbitAdmin(connections);
  }

  @Bean
  RabbitTemplate template(ConnectionFactory connections) {
    var template = new RabbitTemplate(connections);
    template.setMessageConverter(new Jackson2JsonMessageConverter());
    return template;
  }
}

@Configuration(proxyBeanMethods = false)
@EnableRabbit
class Listeners {
  @Bean
  SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(ConnectionFactory connections) {
    var factory = new SimpleRabbitListenerContainerFactory();
    factory.setConnectionFactory(connections);
    factory.setMessageConverter(new Jackson2JsonMessageConverter());
    return factory;
  }

  @Bean
  SimpleRabbitListenerContainerFactory withoutConverter(ConnectionFactory connections) {
    var factory = new SimpleRabbitListenerContainerFactory();
    factory.setConnectionFactory(connections);
    return factory;
  }
}
