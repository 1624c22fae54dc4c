"""Topics and Kafka's clients: making topics, who may use them, reading them from outside the job."""
